"""One suite for each Protocol that has several implementations: what every one of them must promise.

An implementation enters a suite with one line, in the list or dictionary that the suite's docstring names.

engines, providers, hosts   what trains, and what machines run on
barriers, checkpoint_stores the trainer's clocks, and what survives its machines
strategies                  who buys machines, and when
policies                    how jobs share machines
eviction_models             what a price or a record says about evictions
feeds, price_sources        where prices come from
"""
