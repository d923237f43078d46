"""Upstream's C++ and HIP code: tokens, scopes, and the AST of clang."""
