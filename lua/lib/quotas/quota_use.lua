-- What the owners of one domain use of their quotas, and the domain itself: a line for each subject, an owner or the domain. Items and
-- bytes are those that a frontend has measured, and those of all publishes that were let through since: `base` and `added` together.
-- `added` only grows, so a measurement is stored less what `added` was when it began. A subject is measured again at `due` at the earliest.
local quota_use = {}

function quota_use.read(subject)
  local line = redis.call('HGET', key.quota_use, subject) or '0 0 0 0 0 0 0'
  local rate_at, count, bytes, added_count, added_bytes, measured, due = string.match(line,
    '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
  return {rate_at = rate_at, count = tonumber(count), bytes = tonumber(bytes), added_count = tonumber(added_count),
    added_bytes = tonumber(added_bytes), measured = tonumber(measured), due = tonumber(due)}
end

function quota_use.write(subject, use)
  redis.call('HSET', key.quota_use, subject, string.format('%s %.0f %.0f %.0f %.0f %.0f %.0f', use.rate_at, use.count, use.bytes,
    use.added_count, use.added_bytes, use.measured, use.due))
  redis.call('EXPIRE', key.quota_use, arg.idle_seconds)
end
