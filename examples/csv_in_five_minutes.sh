#!/bin/sh -e
python make_deliveries.py  # deliveries.csv, later.csv and new.csv: take your own files instead
sigmax describe deliveries.csv --target minutes
sigmax fit deliveries.csv --target minutes --effort quick --time-column ordered
sigmax predict model new.csv --quantiles 0.5,0.95
sigmax evaluate model later.csv --by vehicle
