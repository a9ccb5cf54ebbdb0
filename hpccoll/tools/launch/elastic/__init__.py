# SPDX-License-Identifier: Apache-2.0
"""`hpccoll run --min-np ...`: a job that goes on when ranks or hosts are lost, and takes new ones in.

membership.py    the coordinator: a function of events that decides the members, without clock, process or socket
events.py        what it takes and gives; worker.py: what it knows of a process
hosts.py         slots of hosts, failures, exclusion
server.py        the coordinator's connections to the ranks
host_agent.py    the agent of a host, a process; agent_process.py is the launcher's side
agents.py        starts, watches and kills processes for the agent
discovery.py     the hosts, from a script
job.py           the command, and the loop that connects the parts

README.md beside this file has the rules (E1 to E9) that the comments name.
"""
