#!lua
-- Let publishers publish, each at most at the `rate` of one publisher (empty: none any more). Returns how many ms one has to wait that may
-- not publish now.
-- ARGV: now revision rate | by
-- RETURNS: ok stale gone deleted | ok too-fast
local refusal = partition.load()
if refusal then return refusal end
local SOME, results = 200, {}
local rate = arg.rate ~= '' and rate_limit.read(arg.rate)
-- A publisher whose number the clock has passed is as one without a number.
local idle = redis.call('ZRANGEBYSCORE', key.publish_rates, '-inf', call.partition_micros, 'LIMIT', 0, SOME)
if #idle > 0 then redis.call('ZREM', key.publish_rates, unpack(idle)) end

local function meter(by)
  local at = redis.call('ZSCORE', key.publish_rates, by)
  local may = rate_limit.room(rate, at) > 0
  -- Also of one that may not: after the clock was set back, the rate goes on from the clock.
  local after = rate_limit.after(rate, at, may and 1 or 0)
  redis.call('ZADD', key.publish_rates, after, by)
  return may and {'ok'} or {'too-fast', rate_limit.next_ms(rate, after) - call.partition_now}
end

for i, row in ipairs(rows) do results[i] = rate and meter(row.by) or {'ok'} end
return respond.results(results)
