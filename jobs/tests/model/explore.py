# SPDX-License-Identifier: GPL-2.0
"""All states of a model, breadth first, so that what is found is a shortest path."""

from collections import deque


class Wrong(Exception):
    """A step does what was promised never to happen."""


def path(came, state):
    steps = []
    while came[state]:
        state, what = came[state]
        steps.append(what)
    return steps[::-1]


def explore(model):
    """Returns (number of states, None), or (number, (what is wrong, steps to it)).

    model.steps(state) yields (what, is it a fault, state) and raises Wrong(message, what);
    model.wrong(state) tells what must not be; model.done(state) tells that nothing is owed. From
    each state one that is done must be within reach without another fault."""
    first = model.first()
    came = {first: None}
    back = {}
    goals = []
    todo = deque([first])
    while todo:
        state = todo.popleft()
        if model.done(state):
            goals.append(state)
        try:
            for what, fault, new in model.steps(state):
                if new not in came:
                    came[new] = state, what
                    message = model.wrong(new)
                    if message:
                        return len(came), (message, path(came, new))
                    todo.append(new)
                if not fault:
                    back.setdefault(new, []).append(state)
        except Wrong as wrong:
            message, what = wrong.args
            return len(came), (message, path(came, state) + [what])
    reach = set(goals)
    while goals:
        for state in back.get(goals.pop(), ()):
            if state not in reach:
                reach.add(state)
                goals.append(state)
    for state in came:    # in the order in which they were found
        if state not in reach:
            return len(came), ("the job is owed and never found", path(came, state))
    return len(came), None
