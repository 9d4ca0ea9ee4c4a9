"""Resumable runs of experiments: records, worker processes, methods and reports."""
