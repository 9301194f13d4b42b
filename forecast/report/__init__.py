"""What a person reads: figures and a page, with every number taken from the tables of `forecast.outlook`."""
