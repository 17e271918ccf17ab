"""Reads a script without running it: what it declares, and what is wrong with it. In reading order:

manifest                 what a script declares, as plain data
check                    the analysis: calls everything below
findings                 every finding with its code and meaning
tree, syntax             the syntax tree, and errors of syntax
scope, literals          variables, and values that are written out
script_reading           one script while it is read
declaration, handlers    the declared workflow and its handlers
schedule, duration       intervals and cron expressions
topic_graph              how handlers and topics are connected
calls                    the calls on `ctx` in each step
isolation, globals       no imports, no shared variables, no missing globals
*_rules, flow            the rules: topics, calls, params, messages, prepare, mutations, items, promises, catches
item_guards              where an item checks whether it is done
volatile_ids             ids that are made from time or chance
message_ids              how events are named, to compare two versions
result_reads             where a script reads the result of a mutation
"""
