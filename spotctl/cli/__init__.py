"""The command line: parse, call, render. It decides nothing and computes nothing about runs or money."""
