"""Selection: who gives way to whom, one rule a file, all behind `contract.Selector`.

    posterior     the surest difference of posteriors          slope        rate of improvement (FIRE-like)
    truncation    lowest quantile copies the highest           nsga2        several objectives, non-dominated sorting
    tournament    a random opponent, better or surely better   lexicase     cases in random order
    pb2           truncation, with a bandit for the genes      map_elites   the best of each cell of behaviour
    niches        shared resources, mates that complement      controls     random search, selection only, mutation only, none

`rules` holds what is true of all of them: immunity of newborns, one change in flight a member, caps on clones, immigrants,
and the correction for members that report more often than others. Rules are pure functions of a population and a generator.
"""
