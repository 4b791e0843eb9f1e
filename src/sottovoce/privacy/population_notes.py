"""What a simulation does where its store has another number of users than K, the stated population."""

from sottovoce.privacy.privacy_options import Participation


def population_notes(participation: Participation, users: int) -> list[str]:
    """Return a sentence where the store's number of users differs from K, and one where cohorts are mostly empty.

    K is public, and the accounting uses it. The number of users in the store is private: show the notes only to people
    who may see the data.
    """
    population = participation.population
    if population is None:
        return []
    everyone = participation.sampling == "everyone"
    cohort_size = float(population if everyone else participation.cohort_size)
    sampling_prob = cohort_size / population
    expected = cohort_size if participation.sampling == "fixed" else sampling_prob * users
    notes = []
    if users != population:
        draws = {
            "poisson": f"draws each of the {users:,} with probability q = S/K = {sampling_prob:.3g}, so about "
            f"{expected:.2g} per step",
            "cyclic": f"draws each of the {users:,} in about {sampling_prob:.3g} of all steps, when it is the turn of "
            f"their group, so about {expected:.2g} per step",
            "fixed": f"draws {cohort_size:g} of the {users:,} in every step",
            "everyone": f"takes all {users:,} in every step",
        }[participation.sampling]
        divided = ""
        if participation.weight == "one" and participation.q_min is None:
            divided = f", and divides their sum by {cohort_size:,g}"
        notes.append(
            f"K = {population:,} is stated (participation.population), and the store has {users:,} users. The "
            f"guarantee is computed for K; the simulation {draws}{divided}."
        )
    if expected < 1:
        notes.append(
            f"Only {expected:.2g} users are expected in a step, so many steps have none. Raise "
            "participation.cohort_size."
        )
    return notes
