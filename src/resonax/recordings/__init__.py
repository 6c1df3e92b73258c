"""Recordings: from files, frames and arrays to rows that can be trained on."""
