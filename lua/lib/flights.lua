-- In-flight records: `subid token attempt since frontend sequence log-id bytes jid-length jid item-id`, one readable line
-- an item, there only while the item is locked. All fields but `attempt` are texts here too: Lua and Redis turn a number
-- into a text slowly, and most of these are only passed on.
-- NEEDS: inflight
local flights = {}

function flights.write(f)
  -- Not by string.format, which would end a text at its first zero byte.
  return table.concat({f.subid, f.token, f.attempt, f.since, f.frontend, f.sequence, f.log_id, f.bytes, #f.jid, f.jid,
    f.item}, ' ')
end

function flights.read(position, line)
  if not line then return nil end
  local subid, token, attempt, since, frontend, sequence, log_id, bytes, length, rest =
    string.match(line, '^([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) (.*)$')
  -- A JID's resource may hold spaces: hence its length.
  length = tonumber(length)
  return {position = position, subid = subid, token = token, attempt = tonumber(attempt), since = since,
    frontend = frontend, sequence = sequence, log_id = log_id, bytes = bytes, jid = string.sub(rest, 1, length),
    item = string.sub(rest, length + 2)}
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
