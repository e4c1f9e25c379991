# SPDX-License-Identifier: Apache-2.0
"""The list of scenarios and the words to write one."""

ANY = "any"     # of codes: explained by something, along a chain that ends at the root
scenarios = []


class Scenario:
    """world: options of World. codes: the exact set of findings that are no notices, code -> the
    code it is because of, None for a root, or ANY. maybe: findings that may be there as well, with the same right side. one_of:
    alternatives to a code where the contract leaves the choice. notices: notices that must be there.
    subject: text in the root's subject, or a tuple of alternatives. exit: code, or a tuple. more(w,
    report, fail): what else to look at. env: environment of nodewhy. within: seconds for `check`. limit: seconds that it
    may take in all, where what it waits for takes minutes."""

    def __init__(self, name, set_up, state="healthy", codes=None, subject=None, exit=None, world=None,
                 maybe=None, one_of=None, notices=(), more=None, env=None, within=None, daemon=False,
                 needs=None, limit=None):
        self.name, self.set_up, self.doc = name, set_up, set_up.__doc__
        self.states = (state,) if isinstance(state, str) else state
        self.codes, self.subject = dict(codes or {}), subject
        self.exit = exit if isinstance(exit, (tuple, type(None))) else (exit,)
        self.world, self.maybe, self.one_of = dict(world or {}), dict(maybe or {}), one_of or {}
        self.notices, self.more, self.env, self.within = notices, more, env, within
        self.daemon, self.needs, self.limit = daemon, needs, limit


def scenario(name, state="healthy", codes=None, **options):
    """A `check` of a world on which the decorated function(w) has set faults."""

    def add(set_up):
        if any(s.name == name for s in scenarios):
            raise ValueError("two scenarios are called " + name)
        scenarios.append(Scenario(name, set_up, state, codes, **options))
        return set_up

    return add


def sound(name, more=None, notices=(), env=None, within=None, needs=None, **world):
    """A node that must be healthy: no finding but notices, exit 0."""
    return scenario(name, "healthy", {}, more=more, notices=notices, env=env, world=world, exit=0,
                    within=within, needs=needs)


def broken(name, root, codes=None, **options):
    """One fatal root; codes, when given, is the whole set."""
    return scenario(name, "broken", codes or {root: None}, exit=2, **options)


def degraded(name, root, codes=None, **options):
    return scenario(name, "degraded", codes or {root: None}, exit=1, **options)


def daemon(name, limit=None, **world):
    """A function(w) that runs the daemon itself and raises when it does not keep its word."""

    def add(body):
        if any(s.name == name for s in scenarios):
            raise ValueError("two scenarios are called " + name)
        scenarios.append(Scenario(name, body, world=world, daemon=True, limit=limit))
        return body

    return add
