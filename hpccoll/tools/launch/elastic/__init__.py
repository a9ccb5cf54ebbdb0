# SPDX-License-Identifier: Apache-2.0
"""`hpccoll run --min-np ...`: a job that goes on when ranks or hosts are lost, and takes new ones in.

membership.py    who is in: the coordinator as a function of its events, without clock, process or socket
hosts.py         slots of hosts, failures, exclusion
server.py        the coordinator's connections to the ranks
host_agent.py    the agent of a host, a process; agent_process.py is its end here
agents.py        starts, watches and kills processes for it
discovery.py     the hosts, from a script
job.py           the command, and the loop that joins the parts

docs/elastic.md has the rules (E1 to E9) that the comments name.
"""
