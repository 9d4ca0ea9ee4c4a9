"""The experiments of the paper, each in the module of its name, which registers it."""
