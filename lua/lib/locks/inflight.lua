-- Locks: position -> `frontend sequence token attempt subid log-id since bytes jid-length jid item-id`, one readable line for each locked
-- item. First come the fields that a takeover changes, then those that an acknowledgement reads; only the journal reads the rest, as a
-- whole line. NOBODY as the frontend: no frontend has to send it.
local inflight = {NOBODY = '-'}

-- The arguments, all texts, in the order of the line. Not by string.format, which would end a text at its first zero byte.
function inflight.line(frontend, sequence, token, attempt, subid, log_id, since, bytes, holder, item)
  return frontend .. ' ' .. sequence .. ' ' .. token .. ' ' .. attempt .. ' ' .. subid .. ' ' .. log_id .. ' ' .. since
    .. ' ' .. bytes .. ' ' .. holder .. ' ' .. item
end

-- A JID as in the line: with its length, because its resource may contain spaces.
function inflight.holder(jid)
  return #jid .. ' ' .. jid
end

function inflight.read(position, line)
  local token, attempt, subid, log_id, length, at = string.match(line, '^%S+ %d+ (%d+) (%d+) (%d+) (%S+) %d+ %d+ (%d+) ()')
  -- Eight fields: a table of nine takes twice the memory and time.
  return {position = position, line = line, token = token, attempt = attempt, subid = subid, log_id = log_id,
    jid = string.sub(line, at, at + length - 1), item = string.sub(line, at + length + 1)}
end

-- Returns the size of the payload.
function inflight.bytes(flight)
  return tonumber(string.match(flight.line, '^[^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]+ ([^ ]+) '))
end

-- Returns the frontend that has to send the delivery, and its sequence.
function inflight.sender(line)
  local frontend, sequence = string.match(line, '^([^ ]+) ([^ ]+) ')
  return frontend, tonumber(sequence)
end

-- Assigns the delivery to another frontend.
function inflight.hand_to(position, line, frontend, sequence)
  redis.call('HSET', key.inflight, position, frontend .. ' ' .. sequence .. string.match(line, '^[^ ]+ [^ ]+( .*)$'))
end

-- Returns the locks at these positions, in their order; false where there is none.
function inflight.get_many(places)
  local found = {}
  for first = 1, #places, 1000 do
    local last = math.min(first + 999, #places)
    local lines = redis.call('HMGET', key.inflight, unpack(places, first, last))
    for i = first, last do
      local line = lines[i - first + 1]
      if line then budget.spend(0.6) end
      found[i] = line and inflight.read(places[i], line)
    end
  end
  return found
end

-- Returns the present locks of those that an answer to a delivery names, if they are as `admits` says, and how many it names. The first is
-- in `position` and `token`, the others follow in `others`. A forged answer may name a lock twice, which is returned once.
function inflight.find(row, admits)
  local places, tokens, held, seen = {row.position}, {row.token}, {}, {}
  for position, token in string.gmatch(row.others, '(%S+) (%S+)') do
    places[#places + 1], tokens[#tokens + 1] = position, token
  end
  local found = inflight.get_many(places)
  for i = 1, #places do
    local flight = found[i]
    if flight and flight.token == tokens[i] and not seen[flight.token] and admits(flight) then
      held[#held + 1], seen[flight.token] = flight, true
    end
  end
  return held, #places
end
