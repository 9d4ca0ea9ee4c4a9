"""What the commands for people with a file do, each in the module of its name."""
