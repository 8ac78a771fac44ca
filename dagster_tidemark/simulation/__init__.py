"""A platform in simulated time: days of arrivals, failures and deploys in seconds, for your own tests too."""
