-- When subscriptions expire, for those that do. The node's first partition knows all of these. A time is in ms; 0 is never, `+` and a
-- number counts from now, and the empty text changes nothing.
local subscription_expiry = {MOST_MS = 2592000000, MOST = 200, AGAIN_MS = 1000}

local function time(lease)
  local span = string.match(lease, '^%+(%d+)$')
  return span and call.partition_now + tonumber(span) or tonumber(lease)
end

-- Whether a subscription would be over as it begins.
function subscription_expiry.would_be_over(lease)
  return lease ~= '' and lease ~= '0' and time(lease) <= call.partition_now
end

-- Returns the granted expiry: a request for more than MOST_MS gets MOST_MS (XEP-0060 §12.18).
function subscription_expiry.put(subid, lease)
  if lease == '0' then
    redis.call('ZREM', key.subscription_expiry, subid)
  elseif lease ~= '' then
    rare_keys.write('ZADD', key.subscription_expiry, math.min(time(lease), call.partition_now + subscription_expiry.MOST_MS), subid)
  end
  return subscription_expiry.of(subid)
end

function subscription_expiry.of(subid)
  return tonumber(redis.call('ZSCORE', key.subscription_expiry, subid) or 0)
end

function subscription_expiry.has_ended(subid)
  local ends = subscription_expiry.of(subid)
  return ends > 0 and ends <= call.partition_now
end

-- Tells of expired subscriptions. They stay until the receiver of the notice has ended them everywhere, so that a crash loses none.
function subscription_expiry.tell_lapsed()
  if not rare_keys.any() then return end
  local found = redis.call('ZRANGEBYSCORE', key.subscription_expiry, '-inf', call.partition_now, 'LIMIT', 0, subscription_expiry.MOST)
  for _, subid in ipairs(found) do
    local subscriber = subscriptions.get(subid)
    if subscriber then
      notices.tell({'lapsed', subscriber.jid, subid})
    else
      -- Somebody has removed it with redis-cli.
      redis.call('ZREM', key.subscription_expiry, subid)
    end
  end
end

-- Returns when to look again: `due` or sooner. Those that are being ended are looked for again after a pause.
function subscription_expiry.next(due)
  if not rare_keys.any() then return due end
  local first = redis.call('ZRANGE', key.subscription_expiry, 0, 0, 'WITHSCORES')[2]
  if not first then return due end
  local at = tonumber(first) > call.partition_now and tonumber(first) or call.partition_now + subscription_expiry.AGAIN_MS
  return (due == 0 or at < due) and at or due
end
