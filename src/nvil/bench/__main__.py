"""One case in a process of its own: `measure.measure_apart` starts it."""

import json
import sys

from nvil.bench.cases import Case
from nvil.bench.measure import measure

if __name__ == "__main__":
    question = json.loads(sys.argv[1])
    print(json.dumps(measure(Case(*question["case"]), question["sides"], question["rounds"])))
