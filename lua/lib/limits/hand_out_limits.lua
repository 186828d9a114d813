-- How much a node hands out at most, by its option `hand_out`: items in flight, and a rate, whose number is `rate_at`. Such a queue has one
-- partition.
local hand_out_limits = {MOST = 200}

-- Returns how many items may go out now. After the clock was set back the rate goes on from the clock.
function hand_out_limits.room()
  local most, rate, left = call.partition_options.hand_out.most, call.partition_options.hand_out.rate, hand_out_limits.MOST
  if most then left = math.min(left, math.max(0, most - redis.call('HLEN', key.inflight))) end
  if not rate then return left end
  local meta = call.partition_before
  local at = rate_limit.clamp(rate, meta.rate_at)
  if tonumber(meta.rate_at or 0) > at then hand_out_limits.use(0) end
  return math.min(left, rate_limit.room(rate, at))
end

-- Counts items that go out.
function hand_out_limits.use(count)
  local rate = call.partition_options.hand_out.rate
  if not rate then return end
  partition.put('rate_at', rate_limit.after(rate, call.partition_before.rate_at, count))
end

-- Returns when the rate lets the next of the waiting items go out, if that is before `due` (0: never).
function hand_out_limits.next(due)
  local rate, at = call.partition_options.hand_out.rate, call.partition_before.rate_at
  if not rate or rate_limit.room(rate, at) > 0 then return due end
  local next_ms = rate_limit.next_ms(rate, at)
  return due > 0 and math.min(due, next_ms) or next_ms
end
