-- Runs a compiled selector on a stack (broker/selectors/program.py). An instruction is a letter, the length of its operand in
-- bytes, and the operand. The logic is SQL's three-valued one, where nil is UNKNOWN.
-- CALL: codes
-- Programs are parsed when needed, since few subscriptions have new items to examine, and once, since many may have the same program.
local selector_program = {}

-- Whether an instruction pushes a value.
local function puts(letter)
  return letter == 'f' or letter == 's' or letter == 'n' or letter == 't'
end

-- Whether any other instruction pops two values: all but negation, IS NULL, LIKE and IN.
local function pairs_up(letter)
  return letter ~= '~' and letter ~= '0' and letter ~= 'l' and letter ~= 'i'
end

local function read(text)
  local made, at = {}, 1
  while at <= #text do
    local letter, length, from = string.match(text, '^(.)(%d+):()', at)
    local operand = string.sub(text, from, from + length - 1)
    local value = letter == 'n' and tonumber(operand) or letter == 'i' and read(operand) or operand
    if letter == 't' then value = operand == 'true' end
    made[#made + 1] = {letter, value}
    at = from + length
  end
  compare.count(#made)
  return made
end

local function among(a, choices)
  local found = false
  compare.count(#choices / 2)
  for _, choice in ipairs(choices) do
    local equal = compare.values(a, choice[2], '=')
    if equal then return true end
    if equal == nil then found = nil end
  end
  return found
end

local function negation(a)
  if a == nil then return nil end
  return not a
end

local function both(a, b)
  if a == false or b == false then return false end
  if a == nil or b == nil then return nil end
  return true
end

-- Returns the result for the topmost value `b` and the one below it, `a`.
local function result(letter, operand, a, b)
  if letter == '~' then return negation(compare.truth(b)) end
  if letter == '0' then return b == nil end
  if letter == 'l' then return like_pattern.matches(b, operand) end
  if letter == 'i' then return among(b, operand) end
  if letter == '&' then return both(compare.truth(a), compare.truth(b)) end
  if letter == '|' then return negation(both(negation(compare.truth(a)), negation(compare.truth(b)))) end
  return compare.values(a, b, letter)
end

-- `value` returns the value of a field. Only TRUE selects.
function selector_program.selects(text, value)
  call.selector_program_codes = call.selector_program_codes or {}
  local code = call.selector_program_codes[text] or read(text)
  call.selector_program_codes[text] = code
  local stack, top = {}, 0
  compare.count(#code)
  for _, step in ipairs(code) do
    local letter, operand = step[1], step[2]
    if puts(letter) then
      top = top + 1
      if letter == 'f' then stack[top] = value(operand) else stack[top] = operand end
    else
      local made = result(letter, operand, stack[top - 1], stack[top])
      if pairs_up(letter) then top = top - 1 end
      stack[top] = made
    end
  end
  return compare.truth(stack[top]) == true
end
