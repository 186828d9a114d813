-- Until when a subscription lasts that has an end. The node's first partition knows all of these. A time is in ms; 0 is no end, `+` and
-- a number counts from now, and the empty text changes nothing.
local subscription_expiry = {MOST_MS = 2592000000, MOST = 200, AGAIN_MS = 1000}

local function time(lease)
  local span = string.match(lease, '^%+(%d+)$')
  return span and call.partition_now + tonumber(span) or tonumber(lease)
end

-- Whether a subscription would be over as it begins.
function subscription_expiry.would_be_over(lease)
  return lease ~= '' and lease ~= '0' and time(lease) <= call.partition_now
end

-- Gives until when it is granted: a request for more than MOST_MS is cut down to that (XEP-0060 §12.18).
function subscription_expiry.put(subid, lease)
  if lease == '0' then
    redis.call('ZREM', key.subscription_expiry, subid)
  elseif lease ~= '' then
    call.seldom_any = true
    redis.call('ZADD', key.subscription_expiry, math.min(time(lease), call.partition_now + subscription_expiry.MOST_MS), subid)
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

-- Notices of those that are over. They stay until whoever is told has ended them everywhere, so that a crash forgets none.
function subscription_expiry.lapsed()
  if not seldom.any() then return {} end
  local found = redis.call('ZRANGEBYSCORE', key.subscription_expiry, '-inf', call.partition_now, 'LIMIT', 0, subscription_expiry.MOST)
  for i, subid in ipairs(found) do found[i] = {'lapsed', subscriptions.get(subid).jid, subid} end
  return found
end

-- When to look again: `due` or sooner. What is being ended is looked for again, but not all the time.
function subscription_expiry.next(due)
  if not seldom.any() then return due end
  local first = redis.call('ZRANGE', key.subscription_expiry, 0, 0, 'WITHSCORES')[2]
  if not first then return due end
  local at = tonumber(first) > call.partition_now and tonumber(first) or call.partition_now + subscription_expiry.AGAIN_MS
  return (due == 0 or at < due) and at or due
end
