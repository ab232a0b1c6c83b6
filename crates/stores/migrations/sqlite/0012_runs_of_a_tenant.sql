-- The runs of a tenant are found in `heads`, for each status by itself: a new run is written into one index less.
DROP INDEX runs_by_tenant;
