// The words of SQL that the editor suggests, and how a name is written.

import { quoted } from "./api.js";

const PHRASES = `SELECT, FROM, WHERE, GROUP BY, ORDER BY, HAVING, LIMIT, OFFSET, JOIN, LEFT JOIN, FULL JOIN,
  CROSS JOIN, ON, USING, WITH, UNION, UNION ALL, EXCEPT, INTERSECT, VALUES, DISTINCT, QUALIFY, OVER,
  PARTITION BY, FILTER, AS, AS OF EPOCH, AS OF TIMESTAMP, AND, OR, NOT, IN, BETWEEN, LIKE, ILIKE, IS NULL,
  IS NOT NULL, NULL, TRUE, FALSE, CASE, WHEN, THEN, ELSE, END, ASC, DESC, NULLS LAST, EXISTS, INTERVAL,
  DESCRIBE, SUMMARIZE, EXPLAIN, SHOW TABLES`;

const CALLS = `abs, any_value, approx_count_distinct, arg_max, arg_min, array_agg, avg, bool_and, bool_or,
  cardinality, cast, ceil, changes, coalesce, concat, contains, corr, count, current_date, date_diff,
  date_part, date_trunc, dense_rank, element_at, ends_with, epoch_ms, extract, first, first_value, floor,
  format, generate_series, greatest, histogram, ifnull, json_extract, lag, last, last_value, lead, least,
  len, length, list, list_contains, list_filter, list_sum, list_transform, ln, log10, lower, map_keys,
  map_values, max, median, min, mode, now, nullif, ntile, percent_rank, power, quantile_cont, range, rank,
  regexp_extract, regexp_matches, regexp_replace, replace, round, row_number, split_part, sqrt,
  starts_with, stddev, strftime, string_agg, strip_accents, strptime, struct_extract, substring, sum,
  to_timestamp, trim, trunc, try_cast, typeof, unnest, upper, variance, year`;

const listed = (text) => text.split(",").map((each) => each.trim().replaceAll(/\s+/g, " "));

/** Keywords, of which some are several words. */
export const KEYWORDS = listed(PHRASES);

/** The functions that queries of entities need most. */
export const FUNCTIONS = listed(CALLS);

const RESERVED = new Set(
  `all and any as asc both case cast check collate column constraint create default desc describe distinct
  do else end except false fetch for foreign from group having in initially intersect into is join lateral
  leading like limit natural not null offset on only or order over pivot primary qualify references
  returning select show some summarize symmetric table then to trailing true union unique unpivot user
  using variadic when where window with`.split(/\s+/),
);

/** Return a name as it is written in a query: in quotes only where it needs them. */
export const nameText = (name) =>
  /^[a-z_]\w*$/i.test(name) && !RESERVED.has(name.toLowerCase()) ? name : quoted(name);
