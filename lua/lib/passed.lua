-- Items that dispatch has passed over, for nobody with credit selects them: members `subid position` of one score, so in the
-- order of their texts: what is of another priority has its rank before the position. Each item stands here once with an empty
-- subid; and again for a subscriber who selects it though its mark is beyond it, because the item came back, is more urgent, or
-- was found while there was no credit.
-- So many of these for a subscriber, and what was passed over is examined for it anew. `pages` are what many look through alike;
-- `named` is whether anything stands here by the name of a subscriber, once that has been asked.
-- CALL: pages = {}, named = nil, places = {}
local passed = {MOST = 1000}

-- A text that sorts as items are to go out, by digits alone: a padded position begins with seven zeros and a digit that is none.
function passed.place(position)
  if not call.partition_hinted then
    -- Many look through the same.
    call.passed_places[position] = call.passed_places[position] or positions.padded(position)
    return call.passed_places[position]
  end
  local rank, padded = hints.rank(position), positions.padded(position)
  if not rank then return padded end
  return (rank < hints.USUAL and '00000000' or '') .. rank .. padded
end

function passed.member(subid, position)
  return subid .. ' ' .. passed.place(position)
end

-- Up to `count` of a subid's after the place `mark`.
function passed.after(subid, mark, count)
  local name = subid .. ' ' .. mark
  local page = name .. ' ' .. count
  if subid ~= '' then
    if call.passed_named == nil then call.passed_named = redis.call('ZLEXCOUNT', key.passed, '(!', '+') > 0 end
    if not call.passed_named then return {} end
  end
  if not call.passed_pages[page] then
    local found = redis.call('ZRANGEBYLEX', key.passed, '(' .. name, '(' .. subid .. '!', 'LIMIT', 0, count)
    for i, member in ipairs(found) do found[i] = hints.unpadded(member) end
    call.passed_pages[page] = found
  end
  return call.passed_pages[page]
end

-- There is something for a subscriber before its mark.
function passed.note(subid, position)
  call.passed_pages = {}
  if subid ~= '' then call.passed_named = true end
  redis.call('ZADD', key.passed, 0, passed.member(subid, position))
end

local function forget(subid)
  call.passed_pages = {}
  redis.call('ZREMRANGEBYLEX', key.passed, '[' .. subid .. ' ', '(' .. subid .. '!')
end

-- Who has examined what comes after an item that came back has to be told of it.
function passed.put(entry)
  passed.note('', entry.position)
  local place = passed.place(entry.position)
  for _, subid in ipairs(selectors.all()) do
    local selector = selectors.get(subid)
    if selector.mark >= place and selectors.selects(selector, entry) then
      passed.note(subid, entry.position)
      if redis.call('ZLEXCOUNT', key.passed, '[' .. subid .. ' ', '(' .. subid .. '!') > passed.MOST then
        forget(subid)
        selectors.mark(subid, selector, '')
      end
    end
  end
end

-- Takes an item out, if it stands here; as `stands`, only for a partition that selects.
function passed.remove(position)
  call.passed_pages = {}
  local members = {passed.member('', position)}
  for i, subid in ipairs(selectors.all()) do members[i + 1] = passed.member(subid, position) end
  redis.call('ZREM', key.passed, unpack(members))
end

-- Whether anything less urgent than usual stands here.
function passed.late()
  return redis.call('ZLEXCOUNT', key.passed, '[ ' .. hints.USUAL, '(!') > 0
end

function passed.stands(position)
  return redis.call('ZSCORE', key.passed, passed.member('', position))
end

-- A subscription selects something else now, or nothing any more.
function passed.choose(subid, said)
  if (selectors.said(subid) or '') == said then return end
  forget(subid)
  selectors.put(subid, said)
end

-- When nobody selects and everything has gone, nobody need look here again.
function passed.over()
  if redis.call('EXISTS', key.selectors) == 1 or redis.call('EXISTS', key.passed) == 1 then return false end
  redis.call('HDEL', key.meta, 'selects')
  call.partition_selects = false
  return true
end
