-- How much a node hands out at most: `limits` of the partition has the items in flight (0: any number) and the rule of a rate, or zeros;
-- `rate_at` is the number of that rate. Such a queue has one partition.
local hand_out_limits = {MOST = 200}

-- Returns how many items may go out now. After the clock was set back the rate goes on from the clock.
function hand_out_limits.room()
  local most, rate = rate_limit.bounds(call.partition_before.limits)
  local left = hand_out_limits.MOST
  if most then left = math.min(left, math.max(0, most - redis.call('HLEN', key.inflight))) end
  if not rate then return left end
  local meta = call.partition_before
  local at = rate_limit.clamp(rate, meta.rate_at)
  if tonumber(meta.rate_at or 0) > at then hand_out_limits.use(0) end
  return math.min(left, rate_limit.room(rate, at))
end

-- Counts items that go out.
function hand_out_limits.use(count)
  local _, rate = rate_limit.bounds(call.partition_before.limits)
  if not rate then return end
  partition.put('rate_at', rate_limit.after(rate, call.partition_before.rate_at, count))
end

-- Returns when the rate lets the next of the waiting items go out, if that is before `due` (0: never).
function hand_out_limits.next(due)
  local _, rate = rate_limit.bounds(call.partition_before.limits)
  local at = call.partition_before.rate_at
  if not rate or rate_limit.room(rate, at) > 0 then return due end
  local next_ms = rate_limit.next_ms(rate, at)
  return due > 0 and math.min(due, next_ms) or next_ms
end
