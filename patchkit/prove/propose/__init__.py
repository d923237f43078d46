"""A patch as a folder that a person can turn into a pull request to llama.cpp."""
