-- In-flight records: `subid token attempt since frontend sequence log-id bytes jid-length jid item-id`, one readable line
-- an item, there only while the item is locked.
-- NEEDS: inflight
local flights = {}

function flights.write(f)
  -- string.format would end a text at its first zero byte.
  return string.format('%s %.0f %d %.0f %s %.0f %s %d %d ', f.subid, f.token, f.attempt, f.since, f.frontend,
    f.sequence, f.log_id, f.bytes, #f.jid) .. f.jid .. ' ' .. f.item
end

function flights.read(position, line)
  if not line then return nil end
  local subid, token, attempt, since, frontend, sequence, log_id, bytes, length, rest =
    string.match(line, '^(%S+) (%d+) (%d+) (%d+) (%S+) (%d+) (%S+) (%d+) (%d+) (.*)$')
  -- A JID's resource may hold spaces: hence its length.
  length = tonumber(length)
  return {position = position, subid = subid, token = tonumber(token), attempt = tonumber(attempt),
    since = tonumber(since), frontend = frontend, sequence = tonumber(sequence), log_id = log_id,
    bytes = tonumber(bytes), jid = string.sub(rest, 1, length), item = string.sub(rest, length + 2)}
end

-- The flights at these positions: position -> record, nothing for those not locked.
function flights.at(list)
  local found = {}
  for first = 1, #list, 1000 do
    local last = math.min(first + 999, #list)
    local lines = redis.call('HMGET', key.inflight, unpack(list, first, last))
    for i = first, last do found[list[i]] = flights.read(list[i], lines[i - first + 1]) end
  end
  return found
end
