-- PostgreSQL looks into no JSON that has a \u0000 anywhere: a query that reads one member of an event failed for the
-- whole view because of one value. The views show U+FFFD for it; `stepwell runs events` shows the value as it is.
-- The text \u0000 (a backslash before it) is no such value and stays.

CREATE OR REPLACE FUNCTION chunk_entries(body text)
RETURNS TABLE (at bigint, residual json, ext json) LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS
$$ BEGIN
    RETURN QUERY SELECT (e.value->>0)::bigint, e.value->1, e.value->2
    FROM json_array_elements(CASE WHEN position('\u0000' IN body) = 0 THEN body
        ELSE regexp_replace(body, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g') END::json)
        WITH ORDINALITY AS e (value, place)
    ORDER BY e.place;
EXCEPTION WHEN OTHERS THEN RETURN;
END $$;

-- Nothing is put back. The function stays because the view is written with it.
CREATE OR REPLACE FUNCTION with_nul(value json, body text) RETURNS json LANGUAGE sql IMMUTABLE
PARALLEL SAFE RETURN value;

CREATE OR REPLACE FUNCTION view_columns(body text) RETURNS json LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN position('\u0000' IN body) = 0 THEN body
            ELSE regexp_replace(body, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g') END::json;
