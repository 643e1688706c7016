"""Rules of integration, for expectations under a normal law, normalisers and cdfs."""
