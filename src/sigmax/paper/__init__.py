"""The experiments of the paper, one file each."""
