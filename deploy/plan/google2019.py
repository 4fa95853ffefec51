"""Converts the JSON lines of clusterdata-2019 to CSV for unnest plan.

    spark-submit google2019.py DIR MICROSECONDS SHARDS OUT

DIR has the tables instance_events* and collection_events* of one cell. The tasks that run
at MICROSECONDS of the trace are written to OUT/shard=0 to OUT/shard=SHARDS-1; all tasks of
a user are in one shard. Pods and containers are the same as for
"unnest plan --trace google2019:DIR": an alloc instance is a pod with the tasks in it, and
every other task is a pod of its own.
"""

import sys

from pyspark.sql import SparkSession

TYPES = "SUBMIT QUEUE ENABLE SCHEDULE EVICT FAIL FINISH KILL LOST UPDATE_PENDING UPDATE_RUNNING".split()

# Read as text: whole numbers are in quotes, and types are numbers or names.
INSTANCES = """time STRING, type STRING, collection_id STRING, collection_type STRING,
  instance_index STRING, alloc_collection_id STRING, alloc_instance_index STRING,
  resource_request STRUCT<cpus: DOUBLE, memory: DOUBLE>"""
COLLECTIONS = "collection_id STRING, user STRING"

# SCHEDULE is 3, EVICT to LOST are 4 to 8, UPDATE_RUNNING is 10. A task runs if its last
# event of 3 to 8 is a SCHEDULE. Its last event of 3 and 10 has its request.
TASKS = """
SELECT collection_id, instance_index,
  max_by(alloc_collection_id, at) AS alloc, max_by(alloc_instance_index, at) AS alloc_index,
  max_by(kind, at) FILTER (WHERE kind BETWEEN 3 AND 8) AS last,
  max_by(resource_request, at) FILTER (WHERE kind IN (3, 10)) AS request
FROM (
  SELECT *, CAST(time AS BIGINT) AS at, coalesce(try_cast(type AS INT), array_position({types}, type) - 1) AS kind
  FROM instances WHERE coalesce(collection_type, '0') NOT IN ('1', 'ALLOC_SET'))
WHERE at <= {time} AND (kind BETWEEN 3 AND 8 OR kind = 10)
GROUP BY collection_id, instance_index
"""

# Requests are fractions of the largest machine. Like Bacou et al. we take it for a
# 24xlarge, with 96 CPUs and 384 GiB.
ROWS = """
WITH owners AS (SELECT collection_id, max(user) AS user FROM collections WHERE user <> '' GROUP BY collection_id),
  running AS (SELECT *, coalesce(alloc, '0') <> '0' AND coalesce(alloc_index, '-1') NOT LIKE '-%' AS inside FROM tasks WHERE last = 3)
SELECT coalesce(of_alloc.user, own.user) AS user,
  if(inside, concat(alloc, '/', alloc_index), concat(t.collection_id, '/', t.instance_index)) AS pod,
  if(inside, concat(t.collection_id, '/', t.instance_index), t.instance_index) AS container,
  request.cpus * 96 AS cpu, request.memory * 384 * 1073741824 AS memory,
  CAST(t.collection_id AS BIGINT) AS collection, CAST(t.instance_index AS BIGINT) AS instance
FROM running t
LEFT JOIN owners own ON own.collection_id = t.collection_id
LEFT JOIN owners of_alloc ON t.inside AND of_alloc.collection_id = t.alloc
WHERE coalesce(of_alloc.user, own.user) IS NOT NULL
"""


def main(directory, microseconds, shards, out):
    spark = SparkSession.builder.appName("unnest-google2019").getOrCreate()
    spark.read.schema(INSTANCES).json(f"{directory}/instance_events*").createOrReplaceTempView("instances")
    spark.read.schema(COLLECTIONS).json(f"{directory}/collection_events*").createOrReplaceTempView("collections")
    types = "array(" + ", ".join(f"'{t}'" for t in TYPES) + ")"
    spark.sql(TASKS.format(types=types, time=int(microseconds))).createOrReplaceTempView("tasks")
    rows = spark.sql(ROWS).selectExpr("*", f"pmod(xxhash64(user), {int(shards)}) AS shard")
    # In the order of the reader google2019, because packing depends on it.
    rows.repartition("shard").sortWithinPartitions("shard", "collection", "instance").drop("collection", "instance") \
        .write.partitionBy("shard").option("header", True).option("escape", '"').option("compression", "gzip").csv(out)
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
