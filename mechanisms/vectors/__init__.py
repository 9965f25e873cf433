"""Bits of numbers and of vectors: encodings, several sampled answers a report, BitRand."""
