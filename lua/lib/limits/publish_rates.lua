-- The rate of each publisher of a node, `publish_rate` of the call: bare JID -> when all that it has published would have been published at
-- an even pace. Such a node has one partition.
-- CALL: rule = nil
local publish_rates = {SOME = 200}

-- Reads the rate, and forgets publishers whose number the clock has passed: they are as ones without a number.
function publish_rates.prepare()
  if arg.publish_rate == '' then return end
  call.publish_rates_rule = rate_limit.read(arg.publish_rate)
  local idle = redis.call('ZRANGEBYSCORE', key.publish_rates, '-inf', call.partition_micros, 'LIMIT', 0, publish_rates.SOME)
  if #idle > 0 then redis.call('ZREM', key.publish_rates, unpack(idle)) end
end

-- Counts a publish; returns how many ms its publisher has to wait if it may not publish now.
function publish_rates.use(by)
  local rate = call.publish_rates_rule
  if not rate then return nil end
  local at = redis.call('ZSCORE', key.publish_rates, by)
  local may = rate_limit.room(rate, at) > 0
  -- Also of one that may not: after the clock was set back, the rate goes on from the clock.
  local after = rate_limit.after(rate, at, may and 1 or 0)
  redis.call('ZADD', key.publish_rates, after, by)
  return not may and rate_limit.next_ms(rate, after) - call.partition_now or nil
end
