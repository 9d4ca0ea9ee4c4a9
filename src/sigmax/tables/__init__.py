"""Tables of users: files read and written, and what stands in their columns."""
