# SPDX-License-Identifier: Apache-2.0
"""`hpccoll study`: from a TOML file to jobs, and from their results to a page and to figures for print.

`plan` reads the file; `launches` makes the commands of its runs; `jobs` submits and follows them; `collect` puts their
results together; `curves` and `agreement` compute what `figures`, `tables` and `page` show.
"""
