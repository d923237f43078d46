"""Running what was built, upstream's programs and our own drivers, with every bad end told apart.

Vocabulary: a *program* is upstream's, a *driver* is ours and linked to the libraries of a built side; a *run*
is one process whose output and command are kept in files, so that a run that ended badly leaves them too.
"""
