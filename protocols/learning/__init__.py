"""Training of linear models: trainer, scikit-learn estimators, and the model that attacks aim
at.
"""
