"""The models: features, fitted versions, forecasts and scores."""
