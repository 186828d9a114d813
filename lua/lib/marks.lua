-- Marks of messages that are delivered, so that late copies are known (SX9): each has the digest of its message.
-- NEEDS: delivered delivered_old
local marks = {}

function marks.digest(record)
  return string.match(record, '^%S+ (%S+)')
end

function marks.of(name)
  return redis.call('HGET', key.delivered, name) or redis.call('HGET', key.delivered_old, name)
end

function marks.count()
  return redis.call('HLEN', key.delivered) + redis.call('HLEN', key.delivered_old)
end

function marks.forget(name)
  redis.call('HDEL', key.delivered, name)
  redis.call('HDEL', key.delivered_old, name)
end

-- Two generations, each of one window, so that a mark stays for one window at least; the empty name has its beginning.
function marks.remember(now, window, name, digest)
  local since = redis.call('HGET', key.delivered, '')
  if since and now - tonumber(since) >= window then
    redis.call('RENAME', key.delivered, key.delivered_old)
    since = false
  end
  redis.call('HSET', key.delivered, name, digest)
  if not since then
    redis.call('HSET', key.delivered, '', string.format('%d', now))
    redis.call('PEXPIRE', key.delivered, 2 * window)
  end
end
