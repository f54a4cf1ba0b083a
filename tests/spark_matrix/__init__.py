"""`make spark-matrix`: our tables, read by Spark with the formats' own jars."""
