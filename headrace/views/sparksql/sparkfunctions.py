"""The functions allowed in ad-hoc SQL on Spark: those that depend on nothing but their arguments.

All others are refused. Those of Spark that have been looked at are listed with the reason, so that a test finds what an
upgrade brings.
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

REFUSED: Final = {
    "calls Java or Python": "java_method python_worker_logs reflect try_reflect",
    "returns who and where the server is": """
        collations current_catalog current_database current_path current_schema current_user session_user sql_keywords
        user version
    """,
    "returns paths, parts and partitions of files": """
        input_file_block_length input_file_block_start input_file_name monotonically_increasing_id spark_partition_id
    """,
    "reads files, or text that other libraries parse": """
        from_avro from_protobuf from_xml schema_of_avro schema_of_xml to_avro to_protobuf to_xml xpath xpath_boolean
        xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string
    """,
    "returns rows without reading a table": "range",
    "has not been asked for": """
        aes_decrypt aes_encrypt approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate assert_true
        bitmap_and_agg bitmap_bit_position bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg case
        collate collation collect_union count_min_sketch counter_diff current_time from_base32 hmac is_valid_variant
        is_variant_null kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
        kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint kll_sketch_get_n_double
        kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
        kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
        kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint
        kll_sketch_to_string_double kll_sketch_to_string_float localtime make_time make_timestamp_ltz
        make_timestamp_ntz map_zip_with measure parse_json raise_error randstr schema_of_csv schema_of_json
        schema_of_variant schema_of_variant_agg shuffle st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid
        theta_difference theta_intersection theta_intersection_agg time time_bucket time_diff time_from_micros
        time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc timestamp_nanos
        to_base32 to_binary to_time to_timestamp_ltz to_timestamp_ntz to_variant_object try_aes_decrypt
        try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_parse_json try_to_binary
        try_to_time try_validate_utf8 try_variant_array_append try_variant_get try_variant_insert try_variant_set
        tuple_difference_double tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
        tuple_intersection_agg_double tuple_intersection_agg_integer tuple_intersection_double
        tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
        tuple_sketch_agg_double tuple_sketch_agg_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
        tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer
        tuple_union_agg_double tuple_union_agg_integer tuple_union_double tuple_union_integer tuple_union_theta_double
        tuple_union_theta_integer unix_nanos uuid validate_utf8 variant_array_append variant_delete variant_explode
        variant_explode_outer variant_get variant_insert variant_set variant_strip_nulls vector_avg
        vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum
    """,
}
"""Reasons, and the functions that are refused for them. Nothing reads it but a test."""
