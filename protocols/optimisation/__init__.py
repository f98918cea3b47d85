"""What optimisers share, whoever adds the noise."""
