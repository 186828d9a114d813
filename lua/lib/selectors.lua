-- Selectors: which items a subscription takes. subid -> `mark length text program`: what was asked for in its own words,
-- and compiled. Up to its `mark`, a padded place, it is known which of the items passed over are for it.
-- CALL: of = {}, subids = nil
local selectors = {MOST = 100}

-- False of a subscription that takes whatever comes.
function selectors.get(subid)
  local known = call.selectors_of[subid]
  if known == nil then
    local line = redis.call('HGET', key.selectors, subid)
    local mark, length, from = string.match(line or '', '^(%d*) (%d+) ()')
    known = line and {mark = mark, said = string.sub(line, #mark + 2), program = string.sub(line, from + length)}
    call.selectors_of[subid] = known
  end
  return known
end

-- As the subscriber and its other partitions say it; nil when it has none.
function selectors.said(subid)
  local selector = call.partition_selects and selectors.get(subid)
  return selector and selector.said or nil
end

function selectors.mark(subid, selector, mark)
  if selector.mark == mark then return end
  selector.mark = mark
  -- Many come to the same place in one script.
  writes.add('HSET', key.selectors, subid, mark .. ' ' .. selector.said)
end

-- Whether a selector is asked for; `=` leaves it as it is.
function selectors.wished(row)
  return row.selector ~= '' and row.selector ~= '='
end

-- Whether one more may select: each examines what is passed over for itself.
function selectors.room(subid)
  return redis.call('HLEN', key.selectors) < selectors.MOST or redis.call('HEXISTS', key.selectors, subid) == 1
end

-- The names of all that select.
function selectors.all()
  if not call.selectors_subids then call.selectors_subids = redis.call('HKEYS', key.selectors) end
  return call.selectors_subids
end

-- What is said empty, a subscription selects no more. What is new finds nothing examined.
function selectors.put(subid, said)
  call.selectors_of[subid], call.selectors_subids = nil, nil
  if said == '' then
    redis.call('HDEL', key.selectors, subid)
  else
    redis.call('HSET', key.selectors, subid, ' ' .. said)
    partition.turn_on('selects')
  end
end

local function property(entry, name)
  if name == 'p.message-id' then return entry.item ~= '' and entry.item or positions.item_id(entry.position) end
  if name == 'p.user-id' then return entry.by end
  if name == 'p.group-id' then return entry.key ~= '' and entry.key or nil end
  if name == 'p.content-type' then return entry.kind end
  if name == 'p.creation-time' then return (positions.split(entry.position)) end
  if name == 'h.delivery-count' then return entry.past.attempts - entry.past.untried end
  return nil
end

-- The entry has its `position` and its `past`.
function selectors.selects(selector, entry)
  if not entry.value then
    entry.headers, entry.kind = headers.read(entry.body)
    -- Made once: many may ask it.
    function entry.value(name)
      if string.sub(name, 1, 2) == 'a.' then return entry.headers[string.sub(name, 3)] end
      return property(entry, name)
    end
  end
  return program.selects(selector.program, entry.value)
end
