"""What crosses between roles: messages, frames, canonical bytes and seals."""
