"""Accuracy, cost, likelihood and generative perplexity of a model, with intervals."""
