"""Clouds made of their own SDKs' models, served on this machine."""
