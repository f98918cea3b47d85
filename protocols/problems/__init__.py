"""What is minimised: losses, domains and their constants; knows no trust model."""
