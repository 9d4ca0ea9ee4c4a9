"""``python -m sigmax`` is the command line."""

from sigmax.cli import app

if __name__ == "__main__":
    app()
