"""The functions allowed in ad-hoc SQL on Spark: those that depend on nothing but their arguments.

Others are refused: those that call Java (`reflect`, `java_method`), read files or return their paths (`from_protobuf`,
`input_file_name`), parse XML, return who and where the server is, or are unknown.
"""

from __future__ import annotations

from typing import Final

_OPERATORS: Final = "! != % & * + - / < << <= <=> <> = == > >= >> >>> ^ and between div in like not or rlike | || ~"
_NUMBERS: Final = """
    abs acos acosh asin asinh atan atan2 atanh bin bit_count bit_get bround cbrt ceil ceiling conv cos cosh cot
    csc degrees e exp expm1 factorial floor getbit greatest hypot isnan least ln log log10 log1p log2 mod nanvl
    negative pi pmod positive pow power radians rand randn random rint round sec shiftleft shiftright
    shiftrightunsigned sign signum sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply try_subtract
    uniform width_bucket
"""
_TEXT: Final = """
    ascii base64 bit_length btrim char char_length character_length chr concat concat_ws contains crc32 decode elt
    encode endswith find_in_set format_number format_string hash hex ilike initcap instr is_valid_utf8
    jaro_winkler_similarity lcase left len length levenshtein locate lower lpad ltrim luhn_check make_valid_utf8
    mask md5 octet_length overlay parse_url position printf quote regexp regexp_count regexp_extract
    regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr repeat replace reverse right rpad
    rtrim sentences sha sha1 sha2 soundex space split split_part startswith substr substring substring_index
    to_char to_number to_varchar translate trim try_parse_url try_to_number try_url_decode ucase unbase64 unhex
    upper url_decode url_encode xxhash64
"""
_TIMES: Final = """
    add_months convert_timezone curdate current_date current_timestamp current_timezone date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
    dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day localtimestamp make_date
    make_dt_interval make_interval make_timestamp make_ym_interval minute month monthname months_between next_day
    now quarter second session_window timestamp_micros timestamp_millis timestamp_seconds to_date to_timestamp
    to_unix_timestamp to_utc_timestamp trunc try_to_date try_to_timestamp unix_date unix_micros unix_millis
    unix_seconds unix_timestamp weekday weekofyear window window_time year
"""
_CHOICES: Final = """
    cast coalesce equal_null if ifnull isnotnull isnull nullif nullifzero nvl nvl2 typeof when zeroifnull bigint
    binary boolean date decimal double float int smallint string timestamp tinyint
"""
_COLLECTIONS: Final = """
    aggregate array array_append array_compact array_contains array_distinct array_except array_insert
    array_intersect array_join array_max array_min array_position array_prepend array_remove array_repeat
    array_size array_sort array_union arrays_overlap arrays_zip cardinality element_at exists explode
    explode_outer filter flatten forall from_csv from_json get get_json_object inline inline_outer
    json_array_length json_object_keys json_tuple map map_concat map_contains_key map_entries map_filter
    map_from_arrays map_from_entries map_keys map_values named_struct posexplode posexplode_outer reduce sequence
    size slice sort_array stack str_to_map struct to_csv to_json transform transform_keys transform_values
    try_element_at zip_with
"""
_AGGREGATES: Final = """
    any any_value approx_count_distinct approx_percentile approx_top_k array_agg avg bit_and bit_or bit_xor
    bool_and bool_or collect_list collect_set corr count count_if covar_pop covar_samp every first first_value
    grouping grouping_id histogram_numeric hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg kurtosis
    last last_value listagg max max_by mean median min min_by mode percentile percentile_approx percentile_cont
    percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
    skewness some std stddev stddev_pop stddev_samp string_agg sum theta_sketch_agg theta_sketch_estimate
    theta_union theta_union_agg try_avg try_sum var_pop var_samp variance cume_dist dense_rank lag lead nth_value
    ntile percent_rank rank row_number
"""

FUNCTIONS: Final = frozenset(
    " ".join([_OPERATORS, _NUMBERS, _TEXT, _TIMES, _CHOICES, _COLLECTIONS, _AGGREGATES]).split()
)
"""Their names in small letters."""
