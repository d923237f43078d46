"""C++ structure: tokens, scopes and the AST, all behind our own frozen records."""
